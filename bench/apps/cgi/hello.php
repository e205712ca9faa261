#!/usr/bin/php
<?php

declare(strict_types=1);

echo "Content-Type: text/html\n\n";
echo <<<HTML
    <html>
    <body>
    <h1>CGI PHP Example</h1>
    </body>
    </html>

    HTML;
