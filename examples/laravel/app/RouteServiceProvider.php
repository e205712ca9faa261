<?php

declare(strict_types=1);

namespace App;

use Illuminate\Foundation\Support\Providers\RouteServiceProvider as ServiceProvider;
use Illuminate\Routing\Router;

final class RouteServiceProvider extends ServiceProvider
{
    public function map(Router $router): void
    {
        $router->middleware('web')->group($this->app->basePath('routes/web.php'));
    }
}
