"""One module a runtime: `install(module, plan_text)` wraps it. Loaded only once the runtime itself is."""
