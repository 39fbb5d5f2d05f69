"""One module for each peer. Each names the workloads that it can do in `WORKLOADS`, the style of its client in `RUNNER`
(`blocking` or `nonblocking`), and has `serve(variant)`, which prints its port, and `Client(port, variant)`."""
