<?php

declare(strict_types=1);

return [
    'default' => 'pronghorn',
    'connections' => ['pronghorn' => ['driver' => 'pronghorn', 'queue' => 'default', 'tries' => 3]],
    'failed' => ['driver' => null],
];
