<?php

// The same, kept by Pronghorn.

declare(strict_types=1);

use Pronghorn\Request;
use Pronghorn\Response;

require __DIR__ . '/../../../php/worker/autoload.php';
require __DIR__ . '/app.php';

Pronghorn\serve(static function (Request $request): Response {
    [$status, $type, $body] = answer($request->path, $request->query(), $request->body(...));

    return new Response($body, $status, ['Content-Type' => $type]);
});
