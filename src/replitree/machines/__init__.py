"""State machines that run as tablets, each pure, and the process that serves one over HTTP.

=================  =========================================================================================
`register`         values under names, changed by compare-and-set
`sequencer`        numbers that nobody gets twice
`service`          the HTTP server
`standing_by`      who leads, and who takes over when nobody does
`process`          one candidate: its group, its standing, its server
=================  =========================================================================================
"""
