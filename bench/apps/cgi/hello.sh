#!/bin/bash
echo "Content-Type: text/html"
echo
echo "<html>"
echo "<body>"
echo "<h1>CGI Bash Example</h1>"
echo "</body>"
echo "</html>"
