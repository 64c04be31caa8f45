"""A service that compiles models for others, over HTTP: ``tilewright service``.

In: models in requests, with options. Out: artifacts, or the compiler's errors; jobs and their states in a database.

    client --HTTP--> app --rows--> jobs (database) <--claims-- worker --socket--> confined -> isolated
                      |                                          |                (a child, within limits)
                      +---------------- store (models and artifacts, by content hash) -------+

    limits       what a job and a token may take         requests     options of a submission, and its content hash
    tokens       who may submit                          store        files by content hash
    tables       tables and connections                  jobs         submissions and their states, for the API
    leases       claims of workers, and their ends       confined     the child: limits, no network, no other files
    worker       compiles what it claims                 supervisor   keeps workers running; config: what they know
    app          the API                                 page         the page for a browser
    server       the app, served within bounds

``app`` never compiles. A state is written in one transaction; a worker that lost its lease can't write any more. An
option of submissions is a field in ``requests``; another limit, one in ``limits``.
"""
