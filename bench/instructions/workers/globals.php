<?php

// A handler that reads superglobals.

declare(strict_types=1);

require __DIR__ . '/../../../php/worker/autoload.php';

Pronghorn\serve(static fn (Pronghorn\Request $request): string
    => "{$_SERVER['REQUEST_METHOD']} {$_SERVER['REQUEST_URI']} {$_GET['page']}");
