<?php

declare(strict_types=1);

// With Composer its autoloader does all of this.
if (is_file(__DIR__ . '/../vendor/autoload.php')) {
    require __DIR__ . '/../vendor/autoload.php';

    return;
}

require __DIR__ . '/../autoload.php';
require __DIR__ . '/Support/ArrayStore.php';
require __DIR__ . '/Support/LateStore.php';

// Distributions put it below a directory of include_path.
require_once 'Psr/SimpleCache/autoload.php';
require_once 'Psr/Cache/autoload.php';
