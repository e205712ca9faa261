#include <iostream>

int main()
{
    std::cout << "Content-Type: text/html" << std::endl << std::endl;
    std::cout << "<html>" << std::endl
              << "<body>" << std::endl
              << "<h1>CGI C++ Example</h1>" << std::endl
              << "</body>" << std::endl
              << "</html>" << std::endl;
}
