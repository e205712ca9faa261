<?php

// A page as php-fpm runs it.

declare(strict_types=1);

echo 'Hello World!';
