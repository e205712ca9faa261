<?php

// Rewrites the public surface of each package: php php/goridge/tests/surface.php

declare(strict_types=1);

require __DIR__ . '/bootstrap.php';

foreach (glob(__DIR__ . '/../../*/tests/surface.txt') as $file) {
    file_put_contents($file, Pronghorn\Tests\Support\Surface::describe(dirname($file, 2)));
}
