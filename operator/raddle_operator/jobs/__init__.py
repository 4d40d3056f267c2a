"""The Jobs that carry out an InferenceTuning, as a pure function of what there is.

`template` is what is measured, `places` where that can be, `run` what became of each Job so far. From these `plan`
decides what is to be started and stopped, `manifest` writes a Job, and `status` says it all to people. Results stay in
the status, and are read from there: a Job may go.
"""
