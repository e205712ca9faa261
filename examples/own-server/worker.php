<?php

declare(strict_types=1);

// In an application of one's own: require 'vendor/autoload.php';
require __DIR__ . '/../../php/worker/autoload.php';

Pronghorn\serve(fn (Pronghorn\Request $request): string => "PHP was asked for {$request->path}\n");
