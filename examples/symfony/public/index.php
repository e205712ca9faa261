<?php

// As in every Symfony application. In a worker `APP_RUNTIME` keeps the kernel. Start it from the
// repository's root with
//     pronghorn serve -c examples/symfony/pronghorn.yaml
// and open http://127.0.0.1:8080/

declare(strict_types=1);

use App\Kernel;

require_once __DIR__ . '/../autoload_runtime.php';

return static fn (array $context): Kernel => new Kernel($context['APP_ENV'], (bool) $context['APP_DEBUG']);
