"""TLS for servers on loopback, by an authority that nobody else trusts."""

import contextlib
import ssl
from collections.abc import Iterator

import trustme


def secure(authority: trustme.CA, *, asks_clients: bool = False) -> ssl.SSLContext:
    """What a server needs; with `asks_clients` only those with a certificate of the authority are
    let in.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    if asks_clients:
        authority.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


@contextlib.contextmanager
def client_files(authority: trustme.CA) -> Iterator[tuple[str, str, str]]:
    """Files of the authority, and of a client's certificate and key."""
    mine = authority.issue_cert("me@example.org")
    with (
        authority.cert_pem.tempfile() as ca,
        mine.cert_chain_pems[0].tempfile() as cert,
        mine.private_key_pem.tempfile() as key,
    ):
        yield ca, cert, key
