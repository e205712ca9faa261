<?php

declare(strict_types=1);

// With Composer its autoloader does all of this.
if (is_file(__DIR__ . '/../vendor/autoload.php')) {
    require __DIR__ . '/../vendor/autoload.php';

    return;
}

require __DIR__ . '/../autoload.php';
require __DIR__ . '/../../goridge/tests/autoload.php';

// Distributions put it below a directory of include_path.
require_once 'PhpParser/autoload.php';
require_once __DIR__ . '/Joins.php';
