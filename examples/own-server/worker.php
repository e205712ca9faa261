<?php

declare(strict_types=1);

// In an application of one's own: require 'vendor/autoload.php';
require __DIR__ . '/../../php/worker/autoload.php';

Pronghorn\serve(function (Pronghorn\Request $request): string {
    return 'PHP was asked for ' . htmlspecialchars($request->path) . "\n";
});
