<?php

declare(strict_types=1);

use App\Http\SiteController;
use Illuminate\Support\Facades\Route;

Route::get('/', [SiteController::class, 'home']);
Route::get('/landing', [SiteController::class, 'landing']);
Route::get('/login', [SiteController::class, 'form'])->name('login');
Route::post('/login', [SiteController::class, 'login']);
Route::post('/logout', [SiteController::class, 'logout']);
Route::get('/me', [SiteController::class, 'me'])->middleware('auth');
Route::get('/litter', [SiteController::class, 'litter']);
Route::get('/found', [SiteController::class, 'found']);
Route::get('/enc/{rest}', fn (string $rest) => [$rest, \request()->getRequestUri()])->where('rest', '.*');
