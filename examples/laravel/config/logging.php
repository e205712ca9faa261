<?php

declare(strict_types=1);

return [
    'default' => 'pronghorn',
    'channels' => ['pronghorn' => ['driver' => 'pronghorn', 'level' => 'info']],
];
