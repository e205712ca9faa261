<?php

// Makes the kernel: Debian's Symfony 5.4, its components and FrameworkBundle.

declare(strict_types=1);

require_once __DIR__ . '/../data.php';
require 'Symfony/Bundle/FrameworkBundle/autoload.php'; // Debian's php-symfony-framework-bundle
require __DIR__ . '/../autoload.php';

\spl_autoload_register(static function (string $class): void {
    if (\str_starts_with($class, 'App\\')) {
        require __DIR__ . '/src/' . \strtr(\substr($class, 4), '\\', '/') . '.php';
    }
});

return new App\Kernel(data_folder('symfony'));
