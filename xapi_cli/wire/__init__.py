"""The wire: HTTP/1.1 within limits of time and memory, TLS, proxies, content codings."""
