package app

import (
	"fmt"

	"github.com/fencepost/fencepost/internal/config"
	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/internal/source/sink"
)

func (a *App) rowsSink(c config.Source, _ sink.Content) (source.Sink, error) {
	return nil, fmt.Errorf("sink %q: %w", c.Sink.Kind, config.ErrInvalid)
}

func (a *App) programSink(c config.Source, _ sink.Content) (source.Sink, error) {
	return nil, fmt.Errorf("sink %q: %w", c.Sink.Kind, config.ErrInvalid)
}
