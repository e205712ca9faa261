#!/usr/bin/python3
print("Content-Type: text/html\n")
print("""<html>
<body>
<h1>CGI Python Example</h1>
</body>
</html>""")
