<?php

// The same, booted once and kept by Pronghorn.

declare(strict_types=1);

$kernel = require __DIR__ . '/bootstrap.php';
require __DIR__ . '/../../../php/symfony/autoload.php';

(new Pronghorn\Symfony\Runner($kernel))->run();
