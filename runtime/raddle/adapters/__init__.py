"""One module per runtime, named by a row of `raddle.RUNTIMES` and loaded only once the runtime itself is imported.

An adapter has three functions. What they raise leaves the runtime alone with a line on stderr:

prepare(plan_text)          just before the runtime's module is executed: environment variables that it reads once.
install(module, plan_text)  just after it: what can only be set in the loaded runtime.
effective() -> dict         what the runtime itself says it uses now, for the report; plain JSON values.

docs/how-to/add-a-runtime.md adds one.
"""
