"""What `muxws.v1` is, without I/O, time or chance: frames, states, cuts, lanes, the connection, backoff, liveness."""
