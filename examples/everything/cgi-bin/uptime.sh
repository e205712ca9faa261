#!/bin/sh
# CGI as it was: the answer's header, an empty line, the answer.
echo 'Content-Type: text/plain'
echo
read -r seconds _ </proc/uptime
echo "$REQUEST_METHOD $SCRIPT_NAME: this machine is up for $seconds s"
