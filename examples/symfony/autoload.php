<?php

// With Composer this is vendor/autoload.php.

declare(strict_types=1);

require_once __DIR__ . '/../../php/autoload.php';
// Debian's php-symfony-framework-bundle, -runtime, -messenger, -lock; version 5.4
require_once 'Psr/SimpleCache/autoload.php';
require_once 'Symfony/Bundle/FrameworkBundle/autoload.php';
require_once 'Symfony/Component/Lock/autoload.php';
require_once 'Symfony/Component/Messenger/autoload.php';
require_once 'Symfony/Component/Runtime/autoload.php';

spl_autoload_register(static function (string $class): void {
    $file = __DIR__ . '/src/' . strtr(substr($class, 4), '\\', '/') . '.php';
    if (str_starts_with($class, 'App\\') && is_file($file)) {
        require $file;
    }
});
