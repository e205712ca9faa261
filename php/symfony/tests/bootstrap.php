<?php

declare(strict_types=1);

// With Composer its autoloader does all of this.
if (is_file(__DIR__ . '/../vendor/autoload.php')) {
    require __DIR__ . '/../vendor/autoload.php';

    return;
}

require __DIR__ . '/../autoload.php';

// Distributions put them below a folder of include_path.
require_once 'Doctrine/DBAL/autoload.php';
require_once 'Symfony/Component/Console/autoload.php';
require_once 'Symfony/Component/DependencyInjection/autoload.php';
require_once 'Symfony/Component/HttpKernel/autoload.php';
require_once 'Symfony/Component/Routing/autoload.php';
require_once 'Symfony/Component/Runtime/autoload.php';
require_once 'Twig/autoload.php';
require_once 'Psr/SimpleCache/autoload.php';
require_once 'Symfony/Component/Cache/autoload.php';
require_once 'Symfony/Component/Lock/autoload.php';
require_once 'Symfony/Component/Messenger/autoload.php';
require_once __DIR__ . '/../../cache/autoload.php';
require_once __DIR__ . '/../../cache/tests/Support/ArrayStore.php';
require_once __DIR__ . '/../../jobs/autoload.php';
