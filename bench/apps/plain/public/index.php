<?php

// Under php-fpm, mod_php and `php -S`.

declare(strict_types=1);

require __DIR__ . '/../app.php';

[$status, $type, $body] = answer(
    (string) \strtok($_SERVER['REQUEST_URI'], '?'),
    $_GET,
    static fn (): string => (string) \file_get_contents('php://input'),
);
\http_response_code($status);
\header("Content-Type: $type");
foreach (\is_string($body) ? [$body] : $body as $piece) {
    echo $piece;
}
