"""A server that counts."""

from gevent.pywsgi import WSGIServer

from muxws_green import WSGIApp


def handle(payload, stream):
    """Called for each stream that a client opens, in a greenlet of its own."""
    for number in range(payload["count"]):
        stream.send({"number": number})


WSGIServer(("127.0.0.1", 8000), WSGIApp(handle), log=None).serve_forever()
