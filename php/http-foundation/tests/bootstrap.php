<?php

declare(strict_types=1);

// With Composer its autoloader does all of this.
if (is_file(__DIR__ . '/../vendor/autoload.php')) {
    require __DIR__ . '/../vendor/autoload.php';

    return;
}

require __DIR__ . '/../autoload.php';
require __DIR__ . '/../../worker/tests/bootstrap.php';

// Distributions put it below a folder of include_path.
require_once 'Symfony/Component/HttpFoundation/autoload.php';
require_once 'Symfony/Component/VarDumper/autoload.php';
