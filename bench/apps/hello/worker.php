<?php

// A kept worker, without PSR-7.

declare(strict_types=1);

require __DIR__ . '/../../../php/worker/autoload.php';

Pronghorn\serve(static fn (Pronghorn\Request $request): string => 'Hello World!');
