"""The greenlets of a connection, and what an application holds of them: peers and streams."""
