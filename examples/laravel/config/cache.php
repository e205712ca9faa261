<?php

declare(strict_types=1);

return [
    'default' => 'pronghorn',
    'prefix' => 'laravel:',
    'stores' => ['pronghorn' => ['driver' => 'pronghorn', 'storage' => 'cache']],
];
