"""State machines that run as tablets, each pure, and the process that serves one over HTTP.

=================  =========================================================================================
`register`         values under names, changed by compare-and-set
`sequencer`        numbers that no client gets twice
`service`          the HTTP server
`standing_by`      which process leads, and which takes over when none does
`process`          one candidate: its group, its standing, its server
=================  =========================================================================================
"""
