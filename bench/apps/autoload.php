<?php

// Finds classes of Debian's PHP packages by their names. Debian's own loaders ask one package after
// the other, which takes a sixth of a request under php-fpm. With Composer's loaders it would not,
// so it must not count here. What has another name than its file is left to Debian's.

declare(strict_types=1);

\spl_autoload_register(static function (string $class): void {
    $file = '/usr/share/php/' . \strtr($class, '\\', '/') . '.php';
    if (\is_file($file)) {
        require $file;
    }
}, true, true);
