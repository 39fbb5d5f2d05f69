"""Who may connect: a token in a header or, from a browser, in a subprotocol; and pages of this site alone."""

import hmac

from muxws_green import HandshakeRefused, Server, UpgradeRefused, accept, connect

TOKENS = {"s3cret-of-ann": "ann", "s3cret-of-bob": "bob"}


def user_of(environ):
    """Who asks, or None."""
    scheme, _, token = environ.get("HTTP_AUTHORIZATION", "").partition(" ")
    if scheme.lower() != "bearer":
        offered = environ.get("HTTP_SEC_WEBSOCKET_PROTOCOL", "").split(",")
        tokens = [entry.strip().removeprefix("bearer.") for entry in offered if entry.strip().startswith("bearer.")]
        token = tokens[0] if tokens else ""
    for known, user in TOKENS.items():
        if hmac.compare_digest(known.encode(), token.encode()):
            return user
    return None


def refuse(status, text, start_response, headers=()):
    """Answer, and let the connection end, since a hasty client may have sent frames behind its request."""
    start_response(status, [("Content-Length", str(len(text))), ("Connection", "close"), *headers])
    return [text]


def application(environ, start_response):
    """Know who it is before there is a connection."""
    user = user_of(environ)
    if user is None:
        return refuse("401 Unauthorized", b"who are you?\n", start_response, [("WWW-Authenticate", "Bearer")])
    try:
        peer = accept(environ, start_response, allowed_origins=allowed)
    except UpgradeRefused as refusal:
        return refuse(f"{refusal.status} Refused", refusal.reason.encode(), start_response, refusal.headers)
    peer.tags["user"] = user
    peer.on_stream(lambda payload, stream: stream.reply(f"you are {user}"))
    return peer.serve()


def allowed(origin):
    """Programs send no Origin; pages must be ours."""
    return origin is None or origin == "https://app.example"


def attempt(what, **options):
    """Try to connect and ask."""
    try:
        with connect(url, **options) as peer:
            print(f"{what}: {peer.request(timeout=5.0)}")
    except HandshakeRefused as error:
        print(f"{what}: HTTP {error.status}")


server = Server(("127.0.0.1", 0), application, log=None)
server.start()
url = f"ws://127.0.0.1:{server.server_port}/"
attempt("no token", headers={})
attempt("a header", headers={"Authorization": "Bearer s3cret-of-ann"})
attempt("a subprotocol, as browsers do", subprotocols=["bearer.s3cret-of-bob"])
attempt("the page of a stranger", headers={"Authorization": "Bearer s3cret-of-ann", "Origin": "https://evil.example"})
server.stop()
