<?php

// Prints the public surface: php tests/surface.php > tests/surface.txt

declare(strict_types=1);

require __DIR__ . '/bootstrap.php';

echo Pronghorn\Tests\Support\Surface::describe();
