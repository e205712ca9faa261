<?php

declare(strict_types=1);

use Pronghorn\Request;
use Pronghorn\Response;

require __DIR__ . '/../../php/worker/autoload.php';

Pronghorn\serve(function (Request $request): array|Response {
    static $answered = 0;

    return match ($request->path) {
        '/api/status' => ['answered' => ++$answered, 'mode' => 'worker'],
        default => Response::json(['error' => "no {$request->path} here"], 404),
    };
});
