<?php

declare(strict_types=1);

use App\Http\SiteController;
use Illuminate\Support\Facades\Route;

Route::get('/hello/{name}', fn (string $name) => ['hello' => $name]);
Route::get('/landing', [SiteController::class, 'landing']);
Route::get('/users', [SiteController::class, 'users']);
Route::post('/echo', fn () => ['got' => \request()->all()]);
Route::post('/upload', [SiteController::class, 'upload']);
