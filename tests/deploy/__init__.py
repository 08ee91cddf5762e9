"""The files below deploy/: units, containers, alerts, dashboards."""
