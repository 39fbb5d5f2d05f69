"""Where connections come from and what carries them: sockets, TLS, Unix sockets, WSGI hosts, and memory for tests."""
