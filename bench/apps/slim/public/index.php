<?php

// Under php-fpm, mod_php and `php -S`.

declare(strict_types=1);

(require __DIR__ . '/../app.php')->run();
