"""Named requests and pushes above streams (seed B)."""
