"""A small but real inference engine in pure standard-library Python, with faults on demand.

    python -m toy_engine --ranks 2            # or: python path/to/toy_engine
    curl localhost:PORT/v1/completions -d '{"prompt": "hello", "max_tokens": 20, "stream": true}'
    curl localhost:PORT/fault -d '{"mode": "stop", "rank": 1}'

It has the anatomy of the big ones, so that what goes wrong in them can be watched in something that starts in a second:

    front   HTTP server: /health, /metrics, /v1/completions (streaming), /fault
      core    scheduler loop: batches requests, asks the workers for a step, waits for the output rank with a time limit
        worker  one a rank: takes the step from a shared-memory ring, computes, meets the others in an all-reduce,
                hands its cache blocks to an offload thread through a bounded queue, answers through its own ring

And it has their habits: /health says 200 whatever the workers do; gauges move only when a step completes; the core listens
to the output rank alone, so a failure on any other rank is logged there and nobody else is told until the time limit.
"""
