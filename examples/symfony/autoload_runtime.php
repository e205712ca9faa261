<?php

// With Composer this is vendor/autoload_runtime.php, which symfony/runtime writes.

declare(strict_types=1);

require_once __DIR__ . '/autoload.php';
if (empty($_SERVER['SCRIPT_FILENAME'])) {
    return;
}
$make = require $_SERVER['SCRIPT_FILENAME'];
$runtime = $_SERVER['APP_RUNTIME'] ?? Symfony\Component\Runtime\SymfonyRuntime::class;
$runtime = new $runtime(['project_dir' => __DIR__, 'disable_dotenv' => true]);
[$make, $arguments] = $runtime->getResolver($make)->resolve();
exit($runtime->getRunner($make(...$arguments))->run());
