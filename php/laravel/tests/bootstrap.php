<?php

declare(strict_types=1);

// With Composer its autoloader does all of this.
if (is_file(__DIR__ . '/../vendor/autoload.php')) {
    require __DIR__ . '/../vendor/autoload.php';

    return;
}

require __DIR__ . '/../autoload.php';

require_once __DIR__ . '/../../cache/tests/Support/ArrayStore.php';

// Distributions put it below a folder of include_path.
require_once 'Illuminate/autoload.php';

spl_autoload_register(static function (string $class): void {
    $file = __DIR__ . '/' . strtr(substr($class, 24), '\\', '/') . '.php';
    if (str_starts_with($class, 'Pronghorn\\Laravel\\Tests\\') && is_file($file)) {
        require $file;
    }
});
