#include <stdio.h>

int main(void)
{
    puts("Content-Type: text/html\n");
    puts("<html>\n<body>\n<h1>CGI C Example</h1>\n</body>\n</html>");
    return 0;
}
