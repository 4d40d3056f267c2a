"""The admission webhook: one process of several equal ones, without state of its own.

In comes an AdmissionReview over HTTPS, out goes one that always allows, with a patch where a policy governs the pod.
`review` reads these, `admission` decides by `injection` from what `caches` hold, `verdict` writes the answers, `server`
and `tls` speak HTTPS, `process` puts them together: ``run(settings)`` is the whole process.
"""
