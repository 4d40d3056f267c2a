"""The admission webhook: one process of several equal ones, without state of its own.

``run(settings)`` is the whole process. `review` reads and writes AdmissionReviews, `admission` decides, `caches` holds
what decisions rest on, `server` and `tls` speak HTTPS, `process` puts them together.
"""
